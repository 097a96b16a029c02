package cache

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// CheckReach tells what is wrong with the base URL of links, which a setting holds, where agents run on machines or in
// containers that scalers start: an address that means "this machine" leads them to themselves.
func CheckReach(setting, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%s: a URL such as https://kici.example is required", setting)
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	ip := net.ParseIP(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return fmt.Errorf("%s: agents that a scaler starts cannot reach %s; set the address of this server as they reach it", setting, u.Host)
	}
	return nil
}
