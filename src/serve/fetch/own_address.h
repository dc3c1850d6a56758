/* Is an address one of this machine's? The system is asked each time: interfaces come and go. */
#ifndef EK_SERVE_OWN_ADDRESS_H
#define EK_SERVE_OWN_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether packets to it would stay here: an address of any interface, up or not, or one that the routes deliver here;
 * or go to more than one host: broadcast and anycast addresses of networks that it is in. An IPv4 address in an IPv6
 * one (::ffff:a.b.c.d, or at the end of any other) is that address. True also where the system does not say. Not known:
 * an address by which a router or the host of a container forwards to this machine. */
bool ek_own_address(const struct sockaddr *address);

#endif
