"""Sans-IO cores of SMP and NTF: messages, errors, handshakes, sessions. No socket, no task, no clock."""
