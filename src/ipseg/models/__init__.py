"""The network: backbone, decoder, heads that grow, image posterior, their fusion."""
