"""The sans-IO core of SMP and NTF: messages, errors, handshakes, sessions. No socket, no task, no clock."""
