package logs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
