package seal

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// AgentTokenPrefix starts every agent token, so that people and secret scanners recognise one.
const AgentTokenPrefix = "kat_"

// shownPrefix is how much of an agent token lists show, to tell tokens apart.
const shownPrefix = 12

// NewAdminToken makes an admin token: 64 hex digits from the system's randomness.
func NewAdminToken() string { return randomHex() }

// NewAgentToken makes an agent token: kat_ and 64 hex digits.
func NewAgentToken() string { return AgentTokenPrefix + randomHex() }

// NewMasterKey makes the text of a master key: 64 hex digits.
func NewMasterKey() string { return randomHex() }

// HashToken is what is stored of a token: the SHA-256 of the whole text in hex. Tokens are looked up and compared by it
// alone, so timing tells nothing about the token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TokenPrefix is the part of a token that may be stored and shown in clear.
func TokenPrefix(token string) string { return token[:min(len(token), shownPrefix)] }

func randomHex() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails: the program ends when the system has no randomness
	return hex.EncodeToString(raw[:])
}
