"""From an MQTT broker into the pipeline."""
