package ingest

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP is the address that a request comes from, as canonical text, "" when unknown. Only a trusted proxy's word is
// taken about whom it speaks for, and of a chain the last address that is no trusted proxy: everything before it is the
// client's own claim.
func ClientIP(r *http.Request, trusted []netip.Prefix) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := peer.Addr().Unmap().WithZone("")
	if !within(trusted, addr) {
		return addr.String()
	}
	chain := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(chain) {
		hop = strings.TrimSpace(hop)
		if hop == "" {
			continue
		}
		next, err := netip.ParseAddr(hop)
		if err != nil {
			return "" // a trusted proxy passed on something that is no address: nobody knows who this is
		}
		if addr = next.Unmap(); !within(trusted, addr) {
			return addr.String()
		}
	}
	if real, err := netip.ParseAddr(strings.TrimSpace(r.Header.Get("X-Real-Ip"))); err == nil && len(r.Header.Values("X-Forwarded-For")) == 0 {
		return real.Unmap().String()
	}
	return addr.String()
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
