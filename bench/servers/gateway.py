"""Our gateway without a console and a history: `gateway.py PORT CONFIG`."""

import sys

from pegboard import Gateway

if __name__ == "__main__":
    Gateway(sys.argv[2]).run("http", port=int(sys.argv[1]))
