package plugintest

import "testing"

// Whether LL is a device kernel on all ranks, on none or on some: whatever is mistaken must be found.
func TestProcessesFindPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"record.c", `  if (nccl_is_on("NCCL_SINGLE_PROC_MEM_REG_ENABLE")) self->flags |= DYN_RANK_SHARES_LL;` + "\n", ""},
		{"tuner.c", "fit && dyn_device_ranks(comm) > 0", "fit && dyn_everywhere(comm, DYN_RANK_DEVICE_LL)"},
		{"tuner.c", "if (dyn_device_ranks(comm) >= 0 && __atomic_load_n", "if (__atomic_load_n"},
		{"tuner.c", "tunable || (asked && comm->averages) ? entries_of(comm, collective, costs, numAlgo, numProto) : 0", "usable_entries(costs, numAlgo, numProto)"},
		{"tuner.c", "uint32_t usable = entries_of(comm, collective, costs, numAlgo, numProto);\n  if", "uint32_t usable = usable_entries(costs, numAlgo, numProto);\n  if"},
		{"tuner.c", "  if (!(usable & ~DYN_MARKS_LL)) return usable;\n", ""},
		{"tuner.c", "#define NEVER_US 1e30f", "#define NEVER_US -1.0f"},
		{"tuner.c", "#define NEVER_US 1e30f", "#define NEVER_US 3e9f"},
		{"tuner.c", "    if (usable >> DYN_MARKS_PROTOCOLS * a & 1) costs", "    costs"},
		{"tuner.c", "  return usable & ~DYN_MARKS_LL;\n", "  return usable;\n"},
		{"tuner.c", "  if (!has_device_kernels(collective)) return usable;\n", ""},
		{"tuner.c", "collective != DYN_ALL_REDUCE || ranks < 0", "ranks < 0"},
		{"tuner.c", "collective != DYN_ALL_REDUCE || ranks < 0", "collective != DYN_ALL_REDUCE"},
		{"tuner.c", "ranks == DYN_DEVICE_BUT_ALL_REDUCE || ", ""},
		{"tuner.c", " || (comm->averages && dyn_gathers_averages(comm->averages))", ""},
		{"tuner.c", "(comm->averages && dyn_gathers_averages(comm->averages))", "(ranks > 0 && comm->averages && dyn_gathers_averages(comm->averages))"},
		{"tuner.c", "tunable || (asked && comm->averages) ?", "tunable ?"},
		{"tuner.c", "(!comm->record && !comm->averages) || !costs", "!comm->record || !costs"},
		{"comm.c", " else if (!member->comm.own) dyn_record_miss(&member->comm);", ""},
		{"comm.c", " else dyn_gathers_leave(comm);", ""},
		{"record.c", "return nccl_is_on(\"NCCL_SYM_NOWIN_ENABLE\") && comm", "return comm"},
		{"processes.c", "!reads || dyn_everywhere(comm, DYN_RANK_SEES_AVERAGES) ? DYN_DEVICE_ALL : DYN_DEVICE_BUT_ALL_REDUCE", "DYN_DEVICE_ALL"},
		{"processes.c", "  if (dyn_everywhere(comm, DYN_RANK_SHARES_LL)) return reads && version < DYN_DEVICE_LOADS ? DYN_DEVICE_SOME : all;\n", ""},
		{"processes.c", "return reads && version < DYN_DEVICE_LOADS ? DYN_DEVICE_SOME : all;", "return all;"},
		{"processes.c", "sharing == comm->nRanks || ", ""},
		{"processes.c", " || (sharing && !reads)", ""},
		{"processes.c", "return sharing || (reads && version < DYN_DEVICE_LOADS) ?", "return sharing ?"},
		{"tuner.c", "comm->self->ncclVersion >= DYN_READS_NOWIN)", "comm->self->ncclVersion >= 22907)"},
		{"comm.c", "  dyn_device_settle(&member->comm);\n", ""},
		{"processes.c", "version >= DYN_READS_NOWIN && version < DYN_DEVICE_LOADS) return", "version < DYN_DEVICE_LOADS) return"},
		{"processes.c", "version >= DYN_READS_NOWIN && version < DYN_DEVICE_LOADS) return", "version > DYN_READS_NOWIN && version < DYN_DEVICE_LOADS) return"},
		{"processes.c", "version >= DYN_READS_NOWIN && version < DYN_DEVICE_LOADS) return", "version >= DYN_READS_NOWIN) return"},
		{"processes.c", "  if (dyn_user_decides())", "  if (false)"},
		{"processes.c", "  if (version == 0)", "  if (false)"},
		{"processes.c", "!nccl_is_on(NOWIN) || ", ""},
		{"processes.c", "reads && dyn_anywhere(comm, DYN_RANK_DEVICE_LL) ?", "false ?"},
		{"record.c", "  if (comm->averages) self->flags |= DYN_RANK_SEES_AVERAGES;\n", "  self->flags |= DYN_RANK_SEES_AVERAGES;\n"},
		{"record.c", "  if (comm->averages) self->flags |= DYN_RANK_SEES_AVERAGES;\n", ""},
		{"record.c", "comm->gathers ? comm->gathers : comm->averages ?", "comm->gathers ? comm->gathers : false ?"},
		{"record.c", "comm->averages ? comm->averages : comm->registers;", "comm->averages;"},
		{"record.c", "tells || device || windows ?", "tells || device ?"},
		{"record.c", "none = asked && (comm->forced || nccl_is_off(\"NCCL_WIN_ENABLE\"))", "none = asked && comm->forced"},
		{"record.c", "none = asked && (comm->forced || nccl_is_off(\"NCCL_WIN_ENABLE\"))", "none = asked && nccl_is_off(\"NCCL_WIN_ENABLE\")"},
		{"record.c", "windows = asked && !none", "windows = asked"},
		{"record.c", "comm->registers || none", "asked"},
		{"nccl_env.h", "value && *value && strtoll(value, NULL, 0) == 0;", "value != NULL;"},
		{"processes.c", "if (!dyn_asks_of_windows(comm, comm->self->ncclVersion)) return DYN_DEVICE_NONE;\n  return dyn_everywhere(comm, DYN_RANK_SEES_WINDOWS) ?", "return dyn_everywhere(comm, DYN_RANK_SEES_WINDOWS) ?"},
		{"processes.c", "dyn_everywhere(comm, DYN_RANK_SEES_WINDOWS) ?", "true ?"},
		{"processes.c", "DYN_DEVICE_SOME : none_of_ranks(comm);", "DYN_DEVICE_SOME : DYN_DEVICE_NONE;"},
		{"processes.c", "(sharing && !reads)) return none_of_ranks(comm);", "(sharing && !reads)) return DYN_DEVICE_NONE;"},
		{"tuner.c", "DYN_RARELY(is_nccls_ll(comm))", "false"},
		{"tuner.c", "is_nccls_ll(comm))) return usable & ~DYN_MARKS_LL;", "is_nccls_ll(comm))) return without_ll(usable, costs, numAlgo, numProto);"},
		{"tuner.c", "ranks == DYN_DEVICE_UNSEEN || ", ""},
		{"tuner.c", "comm->registers && dyn_gathers_windows(comm->registers)", "true"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			findsPluginMistake(t, "test_device", m.file, m.is, m.mistake)
		})
	}
}
