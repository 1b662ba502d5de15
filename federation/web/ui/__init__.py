"""The page: what people look at when they would rather look than type.

Drawn here, with nothing fetched from elsewhere, and whole without JavaScript. It changes things by
operations of the API alone. Must not decide anything, nor touch the store.

- ``admission``: who may look at the page, and who may do something there
- ``asking``: what people ask on the page: how many of a shape fit, and where a workload would go
- ``captions``: what fedsched's own values are called on pages
- ``comparing``: two placements of one workload side by side
- ``drawing``: templates into pages, in a thread of their own
- ``events``: tells pages that something changed, so that they load anew
- ``fragments``: what open pages load anew, drawn once for all who may see the same
- ``funnel``: a decision as a funnel: from all clusters to those that promised
- ``overview``: the whole fleet as one picture: how full each cluster is, and how well
- ``plan_views``: plans: what would move, what moves, and what people say to that
- ``pool_picture``: the node pools of a cluster, as rectangles beside one another
- ``requests``: what addresses ask for, checked before anything is looked up
- ``room_history``: what each cluster had free, for as long as this control plane looks
- ``site``: the page's addresses: who is let in, what is answered, and the headers
- ``static``: the style, the script and the icon
- ``templates``: the pages, and the parts that they share
- ``use_cases``: what the page asks
- ``views``: the views: what each shows of the fleet, of its bindings and of decisions
- ``what_if_views``: what decisions of the last hours would have been with a change
- ``words``: values as the page shows them: escaped, made visible, in units that people read
"""
