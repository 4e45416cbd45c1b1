import sys

from hypersphere.cli import main

sys.exit(main())
