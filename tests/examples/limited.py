"""Runs the product's command with limits that no configuration sets: `limited.py LIMITS wrap …`, LIMITS as JSON."""

import json
import sys

from isthmus.app import main
from isthmus.app.config import plan
from isthmus.core.base.limits import Limits

limits = json.loads(sys.argv.pop(1))
plan.Limits = lambda **named: Limits(**(named | limits))
sys.exit(main.main())
