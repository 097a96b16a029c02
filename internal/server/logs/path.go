package logs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// maxJobElement keeps the folder of a job below the 255 bytes that file systems allow for one name.
const maxJobElement = 200

// Path is where a step's log lies, relative to the log root. Step −1 is the log of the job itself. It is the only place
// that names log paths; readers use the path that was stored with the step.
func Path(runID, jobName string, step int) string {
	return fmt.Sprintf("executions/%s/job-%s/step-%d.log", element(runID), element(jobName), step)
}

// element is a name as one element of a path: what would split or break the path is percent-encoded, and so is the
// percent sign, so that different names never meet. A name too long for the file system ends in a hash of the whole.
func element(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c == '/' || c == '\\' || c == '%' || c < 0x20 || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	encoded := strings.ToValidUTF8(b.String(), "\uFFFD")
	if len(encoded) <= maxJobElement {
		return encoded
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(encoded[:maxJobElement-33], "") + "~" + hex.EncodeToString(sum[:16])
}

// runsFolder is the folder of all runs below the root, and alike in an object store.
const runsFolder = "executions"

// runFolder is where the logs of a run lie. The run is named as an element of paths.
func runFolder(run string) string { return path.Join(runsFolder, run) }

// splitPath is the run, as an element of paths, that a path below the root belongs to, and the rest of the path.
func splitPath(name string) (run, rest string, ok bool) {
	below, ok := strings.CutPrefix(name, runsFolder+"/")
	run, rest, deeper := strings.Cut(below, "/")
	return run, rest, ok && deeper && run != ""
}

// absent tells why a log that is not there is not there: nil when there never was one.
func (s *Store) absent(ctx context.Context, log string) error {
	run, _, ok := splitPath(log)
	if !ok {
		return nil
	}
	expired, err := s.marks.Has(ctx, run)
	if expired {
		err = ErrExpired
	}
	if err != nil {
		return fmt.Errorf("read log %s: %w", log, err)
	}
	return nil
}
