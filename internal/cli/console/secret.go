package console

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// maxSecret bounds what is read as a value. Servers take less and say so.
const maxSecret = 1 << 20

// ReadSecret reads a value without showing it: from a terminal without echo, else the whole of stdin without its last
// line end.
func (p Process) ReadSecret(prompt string, trim bool) (string, error) {
	if fd, ok := Terminal(p.Stdin); ok {
		fmt.Fprint(p.Stderr, prompt)
		raw, err := term.ReadPassword(fd)
		fmt.Fprintln(p.Stderr)
		if err != nil {
			return "", fmt.Errorf("read the value: %w", err)
		}
		return string(raw), nil
	}
	return ReadValue(p.Stdin, trim)
}

// ReadValue reads all there is, without its last line end when it is to be trimmed.
func ReadValue(from io.Reader, trim bool) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(from, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if len(raw) > maxSecret {
		return "", fmt.Errorf("the value is larger than %d bytes", maxSecret)
	}
	text := string(raw)
	if trim {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	return text, nil
}
