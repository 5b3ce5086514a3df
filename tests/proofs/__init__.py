"""Long proofs that `make test` only runs in short form. Each module is a command and says what it proves.

python -m tests.proofs.kill           random kills end in the same bytes          15 min on two cores
python -m tests.proofs.coverage       95 % intervals contain the truth            3 min on one core
python -m tests.proofs.protections    removing a protection fails its test        15 min on two cores
"""
