"""What user code keeps and piles up: outputs, views, copies of weights, exceptions."""
