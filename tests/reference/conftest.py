"""Makes `import format_v1_reference` and `import golden_cases` work."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
