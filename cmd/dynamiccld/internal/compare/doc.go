// Package compare plays learners against recorded tables on all processors. Its results do not depend on their number.
package compare
