"""What a gateway is configured with: files of ours and of other programs, read, checked and watched."""
