from pegboard.config.confinement_keys import ChildResources as ChildResources
from pegboard.config.confinement_keys import Confinement as Confinement
from pegboard.config.foreign.foreign_entry import read_server_entry as read_server_entry
from pegboard.config.gateway_config import FILES as FILES
from pegboard.config.rule_keys import read_rules as read_rules
