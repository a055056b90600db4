"""Conversations with tools and simulated users, and agents for them."""

from equipoise.core.lazy import lazily

_WHERE: dict[str, str] = {
    "ActAgent": "agents",
    "ActionMacroF1": "dialogue_measures",
    "ActionPolicy": "action_policies",
    "ApiGraph": "api_graph",
    "ConfirmWrites": "tau_bench",
    "ErrorTaxonomy": "dialogue_measures",
    "HistoryEffect": "dialogue_measures",
    "JointStateAccuracy": "dialogue_measures",
    "NgramEmbedder": "api_graph",
    "ReactAgent": "agents",
    "ScriptedClerk": "tau_bench",
    "ToolAgentUser": "tau_bench",
    "ToolDial": "tooldial",
    "action_macro_f1": "dialogue_measures",
    "api_edges": "api_graph",
    "edge_quality": "api_graph",
    "expected_pass_hat_k": "tau_bench",
    "history_effect": "dialogue_measures",
    "joint_state_accuracy": "dialogue_measures",
    "keyword_action": "action_policies",
    "name_similarity": "api_graph",
    "ngram_vectors": "api_graph",
    "rule_action": "action_policies",
    "text_agent": "agents",
    "verified_edges": "api_graph",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
