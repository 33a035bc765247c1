from pegboard.config.rule_keys import read_rules as read_rules
