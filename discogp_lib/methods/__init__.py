"""The methods: one file each, all (model, task, config, seed) -> Sheaf."""

from discogp_lib.methods.acdc import acdc
from discogp_lib.methods.base import Method
from discogp_lib.methods.controls import magnitude, random, random_matched
from discogp_lib.methods.discogp import discogp
from discogp_lib.methods.eap import eap, eap_ig
from discogp_lib.methods.edge_pruning import edge_pruning
from discogp_lib.methods.weight_pruning import weight_pruning

METHODS: dict[str, Method] = {
    "discogp": discogp,
    "weight_pruning": weight_pruning,
    "edge_pruning": edge_pruning,
    "acdc": acdc,
    "eap": eap,
    "eap_ig": eap_ig,
    "random": random,
    "random_matched": random_matched,
    "magnitude": magnitude,
}
