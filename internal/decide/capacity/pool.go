package capacity

import (
	"slices"

	"kici/internal/core/label"
)

// Scaler is what the configuration says of one pool.
type Scaler struct {
	Name      string
	Backend   string     // container, bare-metal, firecracker, kubernetes
	Platform  *Platform  // nil: not declared
	Roles     *[]string  // see label.Roles
	Mandatory []string   // gate of every set, as people wrote it
	Sets      [][]string // labels, as people wrote them
}

// Platform is an operating system and an architecture in the words of the configuration.
type Platform struct {
	OS   string // linux, macos or windows
	Arch string // x64 or arm64
}

// bareMetal is the backend whose agents run on the server's own machine.
const bareMetal = "bare-metal"

// systems are the operating systems of the configuration by Node's name, which is that of agents.
var systems = map[string]string{"linux": "linux", "darwin": "macos", "win32": "windows"}

var architectures = []string{"x64", "arm64"}

// Pool resolves the sets of a scaler. hostOS and hostArch are those of the server's machine in Node's words.
func (s Scaler) Pool(hostOS, hostArch string) Pool {
	p := Pool{Name: s.Name}
	machine, platform := s.machine(hostOS, hostArch), s.platform(hostOS, hostArch).tokens()
	for _, labels := range s.Sets {
		tokens := label.Merge(platform, wordTokens(labels))
		origin := label.Spawned(nil, s.Backend, s.Name, s.Roles)
		p.Sets = append(p.Sets, Set{
			Labels: label.Merge(labels, machine, origin, tokens),
			Gate:   add(nil, s.Mandatory, tokens),
			Agent:  label.Spawned(add(labels, tokens), s.Backend, s.Name, s.Roles),
		})
	}
	return p
}

// platform is what the agents' machines are for certain; the zero Platform where nobody said and nobody can know.
func (s Scaler) platform(hostOS, hostArch string) Platform {
	if s.Platform != nil {
		return *s.Platform
	}
	system, known := systems[hostOS]
	if s.Backend != bareMetal || !known || !slices.Contains(architectures, hostArch) {
		return Platform{}
	}
	return Platform{OS: system, Arch: hostArch}
}

// machine lists the labels that agents will have from their machine. A container or virtual machine of which nobody said
// what it is runs Linux on the server's architecture.
func (s Scaler) machine(hostOS, hostArch string) []string {
	if s.Platform != nil {
		hostOS, hostArch = s.Platform.nodeOS(), s.Platform.Arch
	} else if s.Backend != bareMetal {
		hostOS = "linux"
	}
	return label.Machine(hostOS, hostArch)
}

func (p Platform) nodeOS() string {
	for node, system := range systems {
		if system == p.OS {
			return node
		}
	}
	return p.OS
}

// tokens are the gate of the platform: whatever is not what jobs mean when they say nothing. An arm64 Mac is the usual
// Mac.
func (p Platform) tokens() (out []string) {
	if t := label.PlatformToken(p.OS); t != "" {
		out = append(out, t)
	}
	if t := label.PlatformToken(p.Arch); t != "" && p.OS != "macos" {
		out = append(out, t)
	}
	return out
}

// wordTokens are the gate of a set whose labels name a platform, which is how pools said it before they could declare one.
func wordTokens(labels []string) (out []string) {
	for _, l := range labels {
		if t := label.PlatformToken(l); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// Undeclared lists the labels that name a platform in a scaler that declares none. They gate their sets, and whoever
// configured them should declare the platform instead.
func (s Scaler) Undeclared() []string {
	if s.Platform != nil {
		return nil
	}
	named := slices.Concat(s.Sets...)
	return label.Merge(slices.DeleteFunc(named, func(l string) bool { return label.PlatformToken(l) == "" }))
}

// add appends what the set lacks in any case.
func add(set []string, lists ...[]string) []string {
	set = slices.Clone(set)
	for _, l := range slices.Concat(lists...) {
		if !label.Has(set, l) {
			set = append(set, l)
		}
	}
	return set
}
