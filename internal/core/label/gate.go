package label

import "strings"

// The tokens that keep jobs which do not ask for a platform from agents that have it.
const (
	tokenWindows = "windows"
	tokenMacOS   = "macos"
	tokenARM64   = "arm64"
)

// platformTokens are the labels that name a platform, by the token that they stand for.
var platformTokens = map[string]string{
	tokenWindows: tokenWindows, "win32": tokenWindows, osPrefix + "windows": tokenWindows, osPrefix + "win32": tokenWindows,
	tokenMacOS: tokenMacOS, "darwin": tokenMacOS, osPrefix + "macos": tokenMacOS, osPrefix + "darwin": tokenMacOS,
	tokenARM64: tokenARM64, "aarch64": tokenARM64, archPrefix + "arm64": tokenARM64,
}

// PlatformToken is the token of the platform that the label names in any case: windows, macos or arm64. Other labels,
// and those of a platform that is the usual one, have none: "".
func PlatformToken(l string) string { return platformTokens[strings.ToLower(l)] }

// GateOpen tells whether a job that asks for these labels by exact text may pass the gate: it asks for every label of
// it, in any case, or for another name of a platform that stands in it.
func GateOpen(gate, asked []string) bool { return len(missing(gate, asked)) == 0 }

// missing are the labels of the gate that the job does not ask for.
func missing(gate, asked []string) (out []string) {
	for _, g := range gate {
		if !Has(asked, g) && !namesPlatform(asked, g) {
			out = append(out, g)
		}
	}
	return out
}

// namesPlatform tells whether one of the labels names the platform of that token.
func namesPlatform(labels []string, token string) bool {
	for _, l := range labels {
		if t := PlatformToken(l); t != "" && strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}
