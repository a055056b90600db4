"""Workings of MathGAP: logical forms, proof trees, numbers, sentences, and a reader of them."""
