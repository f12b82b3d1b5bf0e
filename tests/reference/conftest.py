"""Makes `import format_reference` work."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
