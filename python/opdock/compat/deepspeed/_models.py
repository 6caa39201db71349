# SPDX-License-Identifier: Apache-2.0
"""Tells the inference functions which of DeepSpeed's injected models calls them: here each model
has its own keys and values, whereas DeepSpeed has one workspace for all."""

import functools
import weakref

_of_layers = weakref.WeakKeyDictionary()  # DeepSpeed's layer -> the Model that it belongs to
_newest = None  # a weak reference to the Model of the layer made last


def _meet(layer):
    """Assigns a new layer to its Model. DeepSpeed numbers the layers of each model from 0."""
    global _newest
    from opdock.compat.deepspeed.inference import arenas

    number = layer.config.layer_id
    model = _newest() if _newest is not None and number else None
    if model is None:
        model = arenas.Model()
        _newest = weakref.ref(model)
    model.last_layer = max(number, model.last_layer or 0)
    _of_layers[layer] = model


def patch(module):
    """Makes the layers of DeepSpeed's module ds_transformer announce their Model in each call.

    Returns a function that undoes it. Layers that were created before are unknown and share one
    workspace.
    """
    base = module.DeepSpeedTransformerInference
    init = base.__init__

    @functools.wraps(init)
    def met(self, *arguments, **named):
        init(self, *arguments, **named)
        _meet(self)

    def call(self, *arguments, **named):
        model = _of_layers.get(self)
        if model is None:
            return super(base, self).__call__(*arguments, **named)
        from opdock.compat.deepspeed.inference import arenas

        with arenas.serving(model):
            return super(base, self).__call__(*arguments, **named)

    base.__init__, base.__call__ = met, call

    def undo():
        base.__init__ = init
        del base.__call__

    return undo
