"""The network lab: hosts that are network namespaces, links that are shaped, and launchers that know them."""
