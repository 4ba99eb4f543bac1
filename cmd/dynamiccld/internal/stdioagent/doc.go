// Package stdioagent lets anybody drive a learner as a subprocess: one JSON object a line in, one a line out.
package stdioagent
