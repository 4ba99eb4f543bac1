// Package store keeps learned choices and the measurements behind them in one bbolt file, filed under tuner.Key: machine
// shape, GPU architecture, NCCL version, communicator shape, collective, size bucket. A new NCCL version therefore
// starts afresh, and Versions tells for which others something was learned.
//
// Store is the file: typed errors, nothing hidden. Resilient is what a daemon uses: everything in memory, written behind
// when the file works; a file that is corrupt, full, locked, read-only or missing costs persistence and nothing else.
//
// Layout, schema 3. Bucket "dynamiccl", key "schema": the schema in decimal. Bucket "learned": keys are text (see
// encodeKey), values are "3 CRC JSON" (see encodeValue), so that `bbolt` and `strings` show what is there. A record
// that fails its checksum is passed over and reported, never fatal. A schema newer than ours is refused; older ones are
// migrated in one transaction. A file without any sign of bbolt is somebody else's: it is refused and left alone. A
// bbolt file that is damaged is moved aside when Options.ReplaceCorrupt says so.
//
// bbolt maps its file and trusts it: a damaged page can panic, or fault where no recover helps. So Open locks the file
// and walks every page with plain reads before bbolt sees it (verify), and every later access runs with faults turned
// into panics and panics into ErrCorrupt (guard), for a file that somebody truncates under us. bbolt's own Tx.Check
// would not do: it runs in a goroutine of its own, where a fault ends the process.
//
// A warm start is a decision of the whole group by construction: only the daemon reads the store, and what it reads
// reaches ranks only inside a plan that all of them apply at the same epoch (docs/design.md, decisions 2 and 3). No
// rank ever opens the file, so two ranks cannot see two states of it.
package store
