"""The wire to the control plane, always dialled from here."""
