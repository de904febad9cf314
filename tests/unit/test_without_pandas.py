"""Arrow is used without pandas, where that is installed: it takes longer to import than all that is ours."""

from __future__ import annotations

import subprocess
import sys


def test_imports_convert_no_list() -> None:
    # pyarrow imports pandas at its first conversion of a list, so no module may have one at its top.
    code = "import sys, tarry.client, tarry.worker, tarry.testing, tarry.fronts.flight.front; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "pyarrow" in modules
    assert "pandas" not in modules
