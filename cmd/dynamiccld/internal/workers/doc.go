// Package workers runs a group of rank processes (dynamiccl-worker, one a GPU) and talks to them: one JSON object a line
// each way. It knows nothing of plans and tables: who measures what is decided by its callers.
package workers
