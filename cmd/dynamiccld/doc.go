// Command dynamiccld tunes the collectives of unmodified NCCL programs. `dynamiccld help` says how to use it.
package main
