package tunersim

import "dynamiccl/actions"

// Constants of NCCL's own cost model, src/graph/tuning.cc of 2.28.9 (ncclTunerConstantsDefaults), in nanoseconds and
// GB/s, by protocol LL, LL128, Simple.
var (
	// baseLatencies: what a call costs before its first step.
	ncclBaseNs = map[actions.Algorithm][3]float64{
		actions.Tree: {6800, 14000, 8400}, actions.Ring: {6600, 14000, 8400}, actions.PAT: {8000, 8000, 8000}, actions.NVLS: {0, 0, 0},
	}
	// hwLatencies of NVLink, PCI and network. Simple is dearer than LL by its fences: LL carries a flag in every 8 bytes
	// and LL128 in every 128, Simple fences before it tells the peer that a slot is full (seed 001, pattern 6).
	ncclNVLinkHopNs = map[actions.Algorithm][3]float64{
		actions.Tree: {600, 1250, 4000}, actions.Ring: {600, 1900, 3400}, actions.PAT: {0, 0, 4000}, actions.NVLS: {0, 0, 25000},
	}
	ncclPCIHopNs = map[actions.Algorithm][3]float64{
		actions.Tree: {1000, 1900, 4000}, actions.Ring: {1000, 2500, 5700}, actions.PAT: {0, 0, 4000},
	}
	ncclNetHopNs = map[actions.Algorithm][3]float64{
		actions.Tree: {5000, 8500, 14000}, actions.Ring: {2700, 4000, 14000}, actions.PAT: {0, 0, 4000}, // 14000/3.5, as NCCL counts it
	}
	// llMaxBws of one node over the 24 channels that a communicator of such a node has; perChMaxRingLL128Bws;
	// perChMaxTreeBws of one node (Simple). They are the most that a channel reaches.
	ncclChannelGBs = [numGenerations][3]float64{
		Volta: {39.0 / 16, 20, 26.5}, Ampere: {87.7 / 24, 20, 24}, Hopper: {141.0 / 24, 36.7, 38.7}, Blackwell: {282.0 / 24, 73.4, 70},
	}
	// The payload of a saturated link: LL half (busBw * .5; tree 1/3.8), LL128 120/128, tree 0.92 of Simple, PAT 0.75, and
	// nvlsEfficiency of Hopper.
	ncclWireShare = map[actions.Algorithm][3]float64{
		actions.Tree: {1 / 3.8, 0.92 * 120.0 / 128, 0.92}, actions.Ring: {0.5, 120.0 / 128, 1}, actions.PAT: {0, 0, 0.75}, actions.NVLS: {0, 0, 0.85},
	}
)

const (
	// patLinearNs: "still a linear part", nRanks * 2.8 us, src/graph/tuning.cc.
	patLinearNs = 2800
	// minTraffic is MinTrafficPerChannel of src/enqueue.cc: a small call never uses more channels than it has 16 KiB
	// cells, whatever was asked for. LL counts its traffic fourfold.
	minTraffic = 16 << 10
	// simpleChunkBytes is a slot of Simple: NCCL_BUFFSIZE 4 MiB over NCCL_STEPS 8, src/include/device.h and src/init.cc.
	simpleChunkBytes = 4 << 20 / 8
	// Round trips of a small put with signal, GIN paper (seed 001): the GPU rings the NIC's doorbell, or a CPU thread does.
	gdakiRoundTripNs = 16700
	proxyRoundTripNs = 18000
	// lsaLaunchNs and lsaBarrierNs: a one-shot kernel with inline flags takes 3.7 us at 1 KiB, NCCL's symmetric kernel 4.0
	// (shared design, section 7, 4x H200); nearly all of it is launch and kernel boundary (4-5 us, section 6).
	lsaLaunchNs  = 3000
	lsaBarrierNs = 700
	// channelsPerNIC fill a NIC, as a median: NCCL opens two channels for each of them by default.
	channelsPerNIC = 2
)

// threads that NCCL gives a channel (NCCL_LL_MAX_NTHREADS, NCCL_LL128_MAX_NTHREADS, NCCL_SIMPLE_MAX_NTHREADS) and the
// bytes a thread must have before another channel is used (NCCL_*_THREAD_THRESHOLD), src/include/device.h.
var (
	ncclThreads          = [3]float64{512, 640, 512}
	ncclThreadThresholds = [3]float64{8, 8, 64}
)

// linkGBs are NVLink's data sheet rates, one direction: V100, A100, H100 and H200, B200.
var linkGBs = [numGenerations]float64{150, 300, 450, 900}
