"""Makes `import format_v1_reference`, `import golden_cases` and `import paper_reference` work."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts/paper"))
