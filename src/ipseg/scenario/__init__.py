"""What is learned when: classes, their order, the steps, and which labels a step may see."""
