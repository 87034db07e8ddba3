"""Goes on PYTHONPATH beside the fault plugin: gives Infinity a tokenizer that can be slowed down.

It wraps the function below `encode_pre`, so that the outer frames stay Infinity's own.
"""

import sys

if any("infinity_emb" in word for word in sys.orig_argv):
    import enginectl_fault_plugin as faults
    from sentence_transformers import SentenceTransformer

    wrap = faults.before(faults.Fault.spend)
    SentenceTransformer.tokenize = wrap(faults.Fault("slow-tokenizer"), SentenceTransformer.tokenize)
