"""Planning: cost model, job resources, rehearsal and disk check, all before an experiment runs."""
