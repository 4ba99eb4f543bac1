package ranklog

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"

	"dynamiccl/actions"
)

// encodeHeader and encodeRecord write what nccltuner/harness/log.h describes; they are the oracle of these tests, and
// harnesstest reads what the real harness writes.
func encodeHeader(h Header) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a buffer takes everything
	put(uint64(magic))
	put(uint32(version))
	put(uint32(recordBytes))
	put(h.Seed)
	for _, v := range []int{h.Rank, h.Ranks, h.Comms, h.Phases, h.NCCLVersion, 0} {
		put(uint32(v))
	}
	return b.Bytes()
}

func encodeRecord(r Record) []byte {
	b := make([]byte, recordBytes)
	binary.LittleEndian.PutUint64(b[0:], r.Bytes)
	binary.LittleEndian.PutUint32(b[8:], r.Seq)
	binary.LittleEndian.PutUint32(b[12:], r.CostNs)
	binary.LittleEndian.PutUint32(b[16:], r.DefaultNs)
	binary.LittleEndian.PutUint32(b[20:], r.BestNs)
	binary.LittleEndian.PutUint16(b[24:], uint16(r.Comm))
	binary.LittleEndian.PutUint16(b[26:], uint16(r.Phase))
	b[28], b[29], b[30], b[31] = byte(r.Collective), byte(r.Algorithm), byte(r.Protocol), r.Channels
	if r.Chosen {
		b[32] |= flagChosen
	}
	if r.Aggregated {
		b[32] |= flagAggregated
	}
	b[33] = r.MaxChannels
	seal(b)
	return b
}

func seal(record []byte) {
	sum := fnv.New32a()
	sum.Write(record[:36])
	binary.LittleEndian.PutUint32(record[36:], sum.Sum32())
}

var header = Header{Seed: 9, Ranks: 2, Comms: 2, Phases: 2, NCCLVersion: 23007}

// logOf is a whole log of one rank.
func logOf(rank int, records ...Record) []byte {
	h := header
	h.Rank = rank
	b := encodeHeader(h)
	for _, r := range records {
		b = append(b, encodeRecord(r)...)
	}
	return b
}

// call is a plausible record: cost in us, the best of the phase is 10, the default 20.
func call(seq, costUs int) Record {
	return Record{Seq: uint32(seq), Collective: actions.AllReduce, Bytes: 1024, Algorithm: actions.Ring, Protocol: actions.LL,
		Channels: 2, MaxChannels: 4, Chosen: costUs != 20, CostNs: uint32(costUs) * 1000, DefaultNs: 20000, BestNs: 10000}
}
