"""An extension for Google's Model Explorer (`pip install ai-edge-model-explorer`):

model-explorer model.pte --extensions=pteron.viewing.model_explorer
"""
