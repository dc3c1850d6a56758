/* Queue of news from the engine's thread to the server's: one locked list and one event descriptor. post may be called
 * from any thread, gather from one thread; all other functions belong to the event loop's thread. */
#ifndef EK_SERVE_MAILBOX_H
#define EK_SERVE_MAILBOX_H

#include "chat/turn.h"

struct ek_loop;

typedef struct ek_mailbox ek_mailbox;
typedef void ek_mail_fn(const ek_turn_news *news);

/* fn is called in the loop's turns for all news, in order of posting, as many as a turn has time for. loop is borrowed.
 * EIO. */
ek_err ek_mailbox_open(ek_mailbox **out, struct ek_loop *loop, ek_mail_fn *fn);
/* An ek_turn_post_fn; box is the ek_mailbox. Copies the news and their text. */
void ek_mailbox_post(void *box, const ek_turn_news *news);
/* Between begin and end, posts wake nobody; the end wakes the reader once for all of them. From one thread; box is the
 * ek_mailbox, in the form that ek_engine_on_results takes. */
void ek_mailbox_gather(void *box, bool begin);
void ek_mailbox_deliver(ek_mailbox *b); /* delivers all posted news now */
void ek_mailbox_close(ek_mailbox *b);   /* call after the last post */

#endif
