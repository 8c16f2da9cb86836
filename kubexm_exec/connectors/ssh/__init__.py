"""The connector for hosts that are reached by SSH, and all that it needs: logging in, channels, shells, gateways."""
