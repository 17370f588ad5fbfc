"""A whole model of an adapter: python merge.py ADAPTER OUT."""

import sys

from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

adapter, out = sys.argv[1:]
AutoPeftModelForCausalLM.from_pretrained(adapter).merge_and_unload().save_pretrained(out)
AutoTokenizer.from_pretrained(adapter).save_pretrained(out)
