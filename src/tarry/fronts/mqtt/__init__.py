"""MQTT front: clients of MQTT 3.1.1 and 5, with QoS 0 and 1. See docs/mqtt.md."""
