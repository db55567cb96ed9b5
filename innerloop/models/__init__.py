"""What is learned and is not our machine: LISTA and its kin, GPT-2."""
