"""hypersphere in other libraries: callbacks of transformers, Lightning and Accelerate, and the Hugging Face Hub.

Each module needs the library that it is named after, and nothing here is imported before you ask for it.

May import: errors, inference, nn, regularize, sphere, util.
"""
