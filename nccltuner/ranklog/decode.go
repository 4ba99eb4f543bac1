package ranklog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"dynamiccl/actions"
)

// ErrFormat is returned for a file that is no log, or one of another version, or a damaged one.
var ErrFormat = errors.New("not a rank log")

const (
	magic       = 0x31474f4c4b4e4152 // "RANKLOG1"
	version     = 1
	headerBytes = 48
	recordBytes = 40

	flagChosen     = 1
	flagAggregated = 2
)

// Header is the beginning of a log.
type Header struct {
	Seed        uint64
	Rank, Ranks int
	Comms       int
	Phases      int
	NCCLVersion int // NCCL_VERSION code
}

// Record is one getCollInfo call on one rank. Costs are those of the recorded table, without noise and faults.
type Record struct {
	Comm        int // index of the communicator, the same on all ranks
	Seq         uint32
	Phase       int
	Collective  actions.Collective
	Bytes       uint64
	Algorithm   actions.Algorithm // what ran, like the next four
	Protocol    actions.Protocol
	Channels    uint8
	MaxChannels uint8 // asked for, by the tuner or by NCCL
	Chosen      bool  // by the tuner; false: NCCL's default
	Aggregated  bool  // several collectives shared the call
	CostNs      uint32
	DefaultNs   uint32
	BestNs      uint32
}

// Decoder reads one log. A last record that was cut off, as a killed rank leaves it, ends the log like its end would.
type Decoder struct {
	Header    Header
	Truncated bool // true after io.EOF from Next when the last record was cut off
	r         *bufio.Reader
	read      int64
}

// NewDecoder reads the header.
func NewDecoder(r io.Reader) (*Decoder, error) {
	d := &Decoder{r: bufio.NewReaderSize(r, 1<<16)}
	var b [headerBytes]byte
	if _, err := io.ReadFull(d.r, b[:]); err != nil {
		return nil, fmt.Errorf("reading the header of a rank log: %w: %w", ErrFormat, err)
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	if m := binary.LittleEndian.Uint64(b[0:]); m != magic {
		return nil, fmt.Errorf("magic %#x: %w (write it with dynamiccl-rank --log)", m, ErrFormat)
	}
	if u32(8) != version || u32(12) != recordBytes {
		return nil, fmt.Errorf("version %d with records of %d bytes, want %d and %d: %w (rebuild dynamiccl-rank)",
			u32(8), u32(12), version, recordBytes, ErrFormat)
	}
	d.Header = Header{
		Seed: binary.LittleEndian.Uint64(b[16:]),
		Rank: int(u32(24)), Ranks: int(u32(28)), Comms: int(u32(32)), Phases: int(u32(36)), NCCLVersion: int(u32(40)),
	}
	h := d.Header
	if h.Ranks < 1 || h.Ranks > 1<<16 || h.Rank >= h.Ranks || h.Comms < 1 || h.Comms > 1<<16 || h.Phases < 1 || h.Phases > 1<<16 {
		return nil, fmt.Errorf("rank %d of %d, %d communicators, %d phases: %w", h.Rank, h.Ranks, h.Comms, h.Phases, ErrFormat)
	}
	return d, nil
}

// Next gives the next record, io.EOF after the last one.
func (d *Decoder) Next() (Record, error) {
	b, err := d.r.Peek(recordBytes)
	if len(b) < recordBytes {
		if err != nil && !errors.Is(err, io.EOF) {
			return Record{}, fmt.Errorf("reading record %d: %w", d.read, err)
		}
		d.Truncated = len(b) > 0
		return Record{}, io.EOF
	}
	sum := fnv.New32a()
	sum.Write(b[:36])
	if binary.LittleEndian.Uint32(b[36:]) != sum.Sum32() {
		return Record{}, fmt.Errorf("record %d has a wrong checksum: %w", d.read, ErrFormat)
	}
	r := Record{
		Bytes: binary.LittleEndian.Uint64(b[0:]), Seq: binary.LittleEndian.Uint32(b[8:]),
		CostNs: binary.LittleEndian.Uint32(b[12:]), DefaultNs: binary.LittleEndian.Uint32(b[16:]),
		BestNs: binary.LittleEndian.Uint32(b[20:]),
		Comm:   int(binary.LittleEndian.Uint16(b[24:])), Phase: int(binary.LittleEndian.Uint16(b[26:])),
		Collective: actions.Collective(b[28]), Algorithm: actions.Algorithm(b[29]), Protocol: actions.Protocol(b[30]),
		Channels: b[31], Chosen: b[32]&flagChosen != 0, Aggregated: b[32]&flagAggregated != 0, MaxChannels: b[33],
	}
	if r.Comm >= d.Header.Comms || r.Phase >= d.Header.Phases || r.Collective >= actions.NumCollectives ||
		r.Algorithm >= actions.NumAlgorithms || r.Protocol >= actions.NumProtocols {
		return Record{}, fmt.Errorf("record %d names a communicator, phase or choice that cannot be: %w", d.read, ErrFormat)
	}
	if _, err := d.r.Discard(recordBytes); err != nil {
		return Record{}, fmt.Errorf("reading record %d: %w", d.read, err)
	}
	d.read++
	return r, nil
}

// String gives the choice as people write it.
func (r Record) String() string {
	by := "default"
	if r.Chosen {
		by = "chosen"
	}
	return fmt.Sprintf("%s %d bytes: %s/%s/%d of %d (%s)", r.Collective, r.Bytes, r.Algorithm, r.Protocol, r.Channels, r.MaxChannels, by)
}
