# SPDX-License-Identifier: Apache-2.0
"""Which of DeepSpeed's injected models calls the inference functions: each has keys and values of
its own, where DeepSpeed has one workspace for all."""

import functools
import weakref

_of_layers = weakref.WeakKeyDictionary()  # a layer of DeepSpeed's -> the Model that it belongs to
_newest = None  # a weak reference to the Model of the layer made last


def _meet(layer):
    """A new layer: DeepSpeed numbers those of each model from 0."""
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
    """Lets the layers of ds_transformer, that module of DeepSpeed's, say whose they are; returns
    what takes it back. Layers that were made before stay unknown: they share one workspace."""
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
